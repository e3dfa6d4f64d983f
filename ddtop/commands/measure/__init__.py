"""An endpoint measured from here, and files judged: no host, no run."""
