"""The sweep: reconcile, stage, restart, gate, watch, measure, go on. Decisions are pure functions of readings."""
