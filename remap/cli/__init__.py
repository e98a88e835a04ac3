"""The command line: arguments, progress, exit codes; one module a command, no logic."""
