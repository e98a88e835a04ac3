"""What people and machines read: an audit's report as text, json, sarif, junit, github, markdown, html.

Each is a module with ``render(report) -> str``, found through ``registry``. Repeated layers are one line
(``collapse``).
"""
