"""What people are told: alerts, notifications, plain progress on a terminal."""
