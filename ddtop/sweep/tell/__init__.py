"""What people are told: alerts, notifications, plain progress."""
