"""The user's own model: a function in a Python file that returns a module, its data and its loss.

    def make():
        return module, data, loss          # or module, data, loss, score

`model.py` is the key of a scenario, `source.py` reads the file and calls the function, `parts.py` says what
it must return, `task.py` trains it, `watch.py` looks at every backward pass. Every mistake is told in words,
with the line of the user's file where there is one.
"""
