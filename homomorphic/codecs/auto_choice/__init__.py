"""The evidence that `auto` chooses by: counts, costs, and a record of earlier rounds."""
