"""What a measurement means: metrics, validity, acceptance length, energy, accuracy; other tools' result files."""
