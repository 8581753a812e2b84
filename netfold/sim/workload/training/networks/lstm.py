"""LSTM language models: with a full softmax, and with a sampled one over a large vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_RANGE = 0.1  # of new embeddings, on either side of 0
_CLASSES_AT_ONCE = 1 << 15  # in a test


class LstmLanguageModel(nn.Module):
    """Words `(batch, time)`, int64, to logits of the word after each, `(batch, time, vocabulary)`.

    The state is zero before the first word. The gradient of the embedding is sparse: rows of a table.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = table(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.output.weight, -_RANGE, _RANGE)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Tensor) -> Tensor:
        """Logits."""
        states, _ = self.lstm(self.embedding(words))
        logits: Tensor = self.output(states)
        return logits


class SampledLstm(nn.Module):
    """An LSTM, a linear projection to the size of the embedding, and a softmax over some words only.

    Gradients of both tables and of the biases are sparse: rows of a table.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = table(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.projection = nn.Linear(hidden, embedding)
        self.softmax = table(vocabulary, embedding)
        self.softmax_bias = nn.Embedding(vocabulary, 1, sparse=True, _weight=torch.zeros(vocabulary, 1))

    def forward(self, words: Tensor, classes: Tensor, log_counts: Tensor) -> Tensor:
        """Logits of each word's successor (column 0) and of the sampled words, `(batch · time, 1 + samples)`.

        From each logit the logarithm of how often its word is expected among the samples is subtracted, and a
        sample that is the successor itself does not count (S. Jean et al., On Using Very Large Target
        Vocabulary for Neural Machine Translation, ACL 2015, §3; as TensorFlow's sampled_softmax_loss).

        Parameters
        ----------
        words
            `(batch, time)`, int64.
        classes
            `(batch · time + samples,)`, int64: the successors, then the samples.
        log_counts
            Of the classes, float32.
        """
        hidden = self.projected(words)
        count = len(hidden)
        weights, biases = self.softmax(classes), self.softmax_bias(classes).squeeze(1) - log_counts
        own = (hidden * weights[:count]).sum(1) + biases[:count]
        others = torch.addmm(biases[count:], hidden, weights[count:].t())
        others = others.masked_fill(classes[count:] == classes[:count, None], -torch.inf)
        return torch.cat((own[:, None], others), dim=1)

    def projected(self, words: Tensor) -> Tensor:
        """The projected state after each word, `(batch · time, embedding)`."""
        states, _ = self.lstm(self.embedding(words))
        found: Tensor = self.projection(states).flatten(0, 1)
        return found

    def losses(self, words: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target `(batch · time,)` by the softmax over the whole vocabulary."""
        hidden = self.projected(words)
        parts = zip(
            torch.split(self.softmax.weight, _CLASSES_AT_ONCE),
            torch.split(self.softmax_bias.weight.squeeze(1), _CLASSES_AT_ONCE),
            strict=True,
        )
        sums = [torch.addmm(biases, hidden, weights.t()).logsumexp(1) for weights, biases in parts]
        own = (hidden * self.softmax(targets)).sum(1) + self.softmax_bias(targets).squeeze(1)
        found: Tensor = torch.stack(sums).logsumexp(0) - own
        return found


def table(rows: int, columns: int) -> nn.Embedding:
    """An embedding with new weights and a sparse gradient."""
    weights = torch.empty(rows, columns).uniform_(-_RANGE, _RANGE)
    return nn.Embedding(rows, columns, sparse=True, _weight=weights)
