"""The load generator: timed HTTP load against an OpenAI-compatible or SGLang endpoint, standard library only.

Start with `spec.LoadSpec` (what is asked), `window.shards.run_shards` (the timed part), `measure.run_cell` (one cell)
and `cells.run_cells` (a list of cells, each committed by itself). It imports nothing else of the agent (so it has its
own /proc and HTTP readers), is importable from a zip and runs on Python 3.8.
"""
