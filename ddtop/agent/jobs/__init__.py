"""Detached jobs: started once by id, run apart, collected later."""
