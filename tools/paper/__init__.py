"""What `make paper` puts beside each other: figures of the papers, and what opus-sim says.

    published.py   the figures of others, with their source
    jobs.py        the papers' jobs as workload files
    played.py      one job in opus-sim, and how a model is fitted to one electrical run
    sections.py    the tables
"""
