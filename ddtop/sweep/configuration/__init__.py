"""One configuration: its server brought up, its cells' trouble settled, the steps and waits between."""
