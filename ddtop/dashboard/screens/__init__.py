"""The screens, one a file. Each lays out widgets and hands keys to the app's actions."""
