"""What a result is worth: validity, accuracy, differences."""
