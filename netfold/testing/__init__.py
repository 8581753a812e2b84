"""Checks that a codec obeys the law of all codecs; an AssertionError says what is violated.

    import netfold

    netfold.testing.check_codec(MyCodec())                  # on gradients that have broken encodings before
    netfold.testing.check_round(MyCodec(), gradients)       # on your gradients, one for each worker

The law:

* All workers decode the same bits, in float32. They do not depend on the order or tree of merging, unless the
  codec's merges do.
* The total is within the codec's bound of the ideal of the contributions, element by element, except elements
  that a note reports as estimates. The bound is finite.
* A promise `exact` means the exact sum of the contributions, rounded once. A promise `unbiased` means errors
  whose mean over the codec's random draws is zero.
* A worker that holds something back keeps it: contribution + residual = gradient + residual before. One that
  names no residual, nor what else it `remembers`, contributes what a new one would.
* Over many rounds of normal values, contributions go with the gradients, and totals with the contributions;
  the bound is at most eight times the largest error, unless it is below 0.1 % of the values.
* A merge of a codec's own (HOST) is the same whoever's words arrive first, unless it draws at random.
* An encoder that is restored from a state goes on as if it had not stopped.
* `merges` names the merges of all messages, `lane_bits` the width of their lanes.
* Encoders do not write to gradients.

Before a round, encoders see a step (`begin`) with all facts that they may need, made up in `steps.Steps`. A
round is held to the promise of `Codec.judged_by`.

A codec may reject gradients by an `EncodeError`.
"""

from netfold.testing.cases import PATTERNS, VALUES, support, values
from netfold.testing.law import check_codec, check_round

__all__ = ["PATTERNS", "VALUES", "check_codec", "check_round", "support", "values"]
