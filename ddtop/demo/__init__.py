"""`ddtop demo`: a real SSH server on loopback, the real agent and the real sweep.

Only two things are stand-ins, and both say SIMULATED: `nvidia-smi` (`nvidia_smi.py`) and the inference engine
(`engine.py`). The machine's own systemctl is never run: the demo host's PATH holds nothing but what `machine.py`
puts there.
"""
