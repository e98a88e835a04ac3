"""Who does the work of a conversion: the threads of this process, or workers elsewhere.

Workers are any executor of ``concurrent.futures``: one file each, found through ``registry``. ``units`` runs
plain functions of plain values on them, and again where a worker was lost.
"""
