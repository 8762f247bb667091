"""Sources -> features -> learning -> pruning -> model; and sources -> features -> labels -> sinks.

The passes over the data. Opens no file that a person named and prints nothing: it is handed sources and
sinks, and tells how far it is through a callback. One module for each thing that commands do.
"""
