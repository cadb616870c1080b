"""The benchmark: weightd beside its rivals, in one run, as ratios.

``python -m tests.bench`` (``make bench``); ``--help`` lists what can be set.

How it keeps noise out: the machine's memory is touched before anything is
timed, rivals take turns within each round, and a ratio is that of two figures
of one round.  Reported are the median over the rounds and, as the spread, the
least and the greatest.  Everything runs on the interpreter that runs this, and
on one filesystem.  Seconds and bytes are this machine's; only ratios carry over.
"""
