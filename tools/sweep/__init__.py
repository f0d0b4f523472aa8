"""What opus-sweep keeps, compares with, and draws.

    results.py    runs, kept in a file as they come, and the figures made of them
    reference.py  figures of others
    plot.py       the picture (Debian's python3-matplotlib)
"""
