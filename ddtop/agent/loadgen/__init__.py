"""The load generator: timed HTTP load against an OpenAI-compatible or SGLang endpoint, standard library only.

Start with `spec.LoadSpec` (what is asked), `window.run_window` (the timed part) and `cells.run_cells` (a list of
cells, each committed by itself). Everything is importable from a zip and runs on Python 3.8.
"""
