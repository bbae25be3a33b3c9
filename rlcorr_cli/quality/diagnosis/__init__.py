"""Why two policies differ: `diagnose` names the causes in a dump's GapTotals, each with the numbers that say so.

A cause is a row of CAUSES and a rule in the module of its family.  Unlike an anomaly it is not sought in the first rows
of a file but in sums over all of them.
"""
