"""The Textual dashboard: a viewer of sessions, live or replayed.

It reads events through a `Session`, folds them into `State`, draws, and sends commands back. It never touches
a host. `run_dashboard` in `ddtop.dashboard.run` is the way in; nothing heavy is imported before it is called.
"""
