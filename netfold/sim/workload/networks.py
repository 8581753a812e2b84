"""PyTorch modules of the models, initialised from PyTorch's global generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.model import ResidualStage

# Attention of several heads.


def attend(
    parts: tuple[Tensor, Tensor, Tensor], heads: int, dropout: float, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of queries, keys and values, each `(batch, time, width)`, as one of them.

    A. Vaswani et al., Attention Is All You Need, NIPS 2017, §3.2; `dropout` is that of the weights. With
    `is_causal` a query attends to its own place and those before it. It is written out as matrix products,
    because PyTorch counts no FLOPs of its fused operator on CPUs.
    """
    queries, keys, values = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = functional.dropout(scores.softmax(3), dropout)
    mixed: Tensor = (weights @ values).transpose(1, 2).flatten(2)
    return mixed


# BERT with a head that finds the answer to a question in a text.


_DEVIATION = 0.02
"""Standard deviation of new weights."""
_EPSILON = 1e-12
"""What norms add to the variance."""


class BertQuestions(nn.Module):
    """Tokens and their segments, both `(batch, time)` int64, to logits `(batch, time, 2)`: start, end.

    Google's modeling.py of BERT without the pooler, with exact GELU. The gradient of the token embedding is
    sparse: rows of a table.
    """

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        sizes: tuple[int, int, int, int],  # layers, heads, width, inner width
        dropout: float,
    ) -> None:
        super().__init__()
        layers, heads, width, inner = sizes
        self.tokens = nn.Embedding(vocabulary, width, sparse=True)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList([_Layer(width, heads, inner, dropout) for _ in range(layers)])
        self.answer = nn.Linear(width, 2)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Logits."""
        places = torch.arange(tokens.shape[1])
        embedded = self.tokens(tokens) + self.positions(places) + self.segments(segments)
        hidden = self.drop(self.norm(embedded))
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.answer(hidden)
        return logits


class _Layer(nn.Module):
    """Attention and an MLP, each added to its input, with a norm after it."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self._heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.query(hidden), self.key(hidden), self.value(hidden)
        mixed = attend(parts, self._heads, self.drop.p if self.training else 0.0)
        hidden = self.norm1(hidden + self.drop(self.project(mixed)))
        inner = functional.gelu(self.expand(hidden))
        found: Tensor = self.norm2(hidden + self.drop(self.contract(inner)))
        return found


# A small convolutional network.


class Cnn(nn.Module):
    """Images `(batch, 1, side, side)` to logits `(batch, classes)`: two convolutions, two linear layers."""

    def __init__(self, channels: tuple[int, int], hidden: int, classes: int, side: int) -> None:
        super().__init__()
        first, second = channels
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.fc1 = nn.Linear(second * (side // 4) ** 2, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        found = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        found = functional.max_pool2d(functional.relu(self.conv2(found)), 2)
        logits: Tensor = self.fc2(functional.relu(self.fc1(found.flatten(1))))
        return logits


# A GPT: a transformer that predicts the next token.


class GptNetwork(nn.Module):
    """Tokens `(batch, time)`, int64, to logits of the token after each, `(batch, time, vocabulary)`.

    As nanoGPT's model.py: norms before attention and MLP, exact GELU, and an output that shares the weights
    of the token embedding.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        sizes: tuple[int, int, int],  # layers, heads, width
        dropout: float,
        has_bias: bool,
    ) -> None:
        super().__init__()
        layers, heads, width = sizes
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([_Block(width, heads, dropout, has_bias) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=has_bias)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_residual = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, std=_DEVIATION / math.sqrt(2 * layers if is_residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        places = torch.arange(tokens.shape[1])
        hidden = self.drop(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight)


class _Block(nn.Module):
    """Attention to earlier places, and an MLP, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float, has_bias: bool) -> None:
        super().__init__()
        self._heads = heads
        self.norm1 = nn.LayerNorm(width, bias=has_bias)
        self.attend = nn.Linear(width, 3 * width, bias=has_bias)  # queries, keys, values
        self.project = nn.Linear(width, width, bias=has_bias)
        self.norm2 = nn.LayerNorm(width, bias=has_bias)
        self.expand = nn.Linear(width, 4 * width, bias=has_bias)
        self.contract = nn.Linear(4 * width, width, bias=has_bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        queries, keys, values = self.attend(self.norm1(hidden)).chunk(3, dim=2)
        dropout = self.drop.p if self.training else 0.0
        mixed = attend((queries, keys, values), self._heads, dropout, is_causal=True)
        hidden = hidden + self.drop(self.project(mixed))
        inner = functional.gelu(self.expand(self.norm2(hidden)))
        added: Tensor = hidden + self.drop(self.contract(inner))
        return added


# LSTM language models: with a full softmax, and with a sampled one over a large vocabulary.


_RANGE = 0.1
"""Bound of new embeddings, on either side of 0."""
_CLASSES_AT_ONCE = 1 << 15
"""Classes that a test takes at a time."""


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

        `words` are `(batch, time)`, int64, `classes` `(batch · time + samples,)`, int64: the successors, then
        the samples; `log_counts` are those of the classes, float32.
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


# NeuMF, the recommender of NCF.


class NeuMF(nn.Module):
    """Neural matrix factorisation for recommendation: a product of embeddings and an MLP, joined at the end.

    He et al., Neural Collaborative Filtering, WWW 2017, §3.4; `factors` and `mlp` are the widths of
    both. Gradients of the embeddings are dense tables in which only the rows of the batch are
    non-zero, or with `sparse` these rows alone. A pass looks up each of the `tables` once.
    """

    def __init__(
        self, users: int, items: int, *, factors: int, mlp: Sequence[int], sparse: bool = False
    ) -> None:
        super().__init__()
        self.factors_user = _table(users, factors, sparse)
        self.factors_item = _table(items, factors, sparse)
        self.mlp_user = _table(users, mlp[0] // 2, sparse)
        self.mlp_item = _table(items, mlp[0] // 2, sparse)
        self.tables = self.factors_user, self.factors_item, self.mlp_user, self.mlp_item
        self.mlp = nn.Sequential(
            *(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()) for inputs, outputs in pairwise(mlp))
        )
        self.output = nn.Linear(factors + mlp[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits `(batch,)` of "this user has chosen this item", for indices `(batch,)` int64."""
        product = self.factors_user(users) * self.factors_item(items)
        hidden = self.mlp(torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1))
        logits: Tensor = self.output(torch.cat((product, hidden), dim=1)).squeeze(1)
        return logits


def _table(rows: int, columns: int, sparse: bool) -> nn.Embedding:
    """Embedding with the small normal start of He et al. (σ 0.01)."""
    table = nn.Embedding(rows, columns, sparse=sparse)
    nn.init.normal_(table.weight, std=0.01)
    return table


# Perceptrons.


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Images `(batch, inputs)` to logits `(batch, outputs)`, with ReLUs between the layers."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


# Residual networks.


class Basic(nn.Module):
    """Two convolutions 3 x 3, and what they are added to."""

    def __init__(self, stage: ResidualStage, inputs: int, stride: int) -> None:
        super().__init__()
        width = stage.width
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(stage, inputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Channels `(batch, width, …)`."""
        found = functional.relu(self.bn1(self.conv1(images)))
        found = self.bn2(self.conv2(found))
        return functional.relu(found + self.downsample(images))


class Bottleneck(nn.Module):
    """A convolution 3 x 3 between two of 1 x 1, and what they are added to."""

    def __init__(self, stage: ResidualStage, inputs: int, stride: int) -> None:
        super().__init__()
        width = stage.width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, stage.outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(stage.outputs)
        self.downsample = _shortcut(stage, inputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Channels `(batch, outputs, …)`."""
        found = functional.relu(self.bn1(self.conv1(images)))
        found = functional.relu(self.bn2(self.conv2(found)))
        found = self.bn3(self.conv3(found))
        return functional.relu(found + self.downsample(images))


class Padded(nn.Module):
    """A shortcut without parameters: every second row and column, and channels of zeros (option A)."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self._more, self._stride = more, stride

    def forward(self, images: Tensor) -> Tensor:
        """Half of the new channels come before the old ones, half after them."""
        before = self._more // 2
        kept = images[:, :, :: self._stride, :: self._stride]
        return functional.pad(kept, (0, 0, 0, 0, before, self._more - before))


class ResNet(nn.Module):
    """Images `(batch, 3, side, side)` to logits `(batch, classes)`; parameters as torchvision names them.

    Convolutions start from a normal distribution (He et al., fan out), as in torchvision.
    """

    def __init__(self, stages: tuple[ResidualStage, ...], classes: int, is_large: bool) -> None:
        super().__init__()
        inputs = stages[0].width
        self.conv1 = nn.Conv2d(3, inputs, 7, 2, 3, bias=False) if is_large else _first(inputs)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.pool = nn.MaxPool2d(3, 2, 1) if is_large else nn.Identity()
        self._stages = []
        for number, stage in enumerate(stages, 1):
            block = Bottleneck if stage.is_bottleneck else Basic
            blocks = []
            for index in range(stage.blocks):
                blocks.append(block(stage, inputs, stage.stride if index == 0 else 1))
                inputs = stage.outputs
            self._stages.append(f"layer{number}")
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        found = self.pool(functional.relu(self.bn1(self.conv1(images))))
        for name in self._stages:
            found = cast(nn.Module, getattr(self, name))(found)
        logits: Tensor = self.fc(found.mean((2, 3)))
        return logits


def _first(outputs: int) -> nn.Conv2d:
    return nn.Conv2d(3, outputs, 3, 1, 1, bias=False)


def _shortcut(stage: ResidualStage, inputs: int, stride: int) -> nn.Module:
    """What is added: the inputs as they are where the shape stays."""
    if stride == 1 and inputs == stage.outputs:
        return nn.Identity()
    if stage.pads:
        return Padded(stage.outputs - inputs, stride)
    return nn.Sequential(
        nn.Conv2d(inputs, stage.outputs, 1, stride, bias=False), nn.BatchNorm2d(stage.outputs)
    )


# VGG networks.


class Vgg(nn.Module):
    """Images `(batch, 3, side, side)` to logits `(batch, classes)`; parameters as torchvision names them.

    Convolutions start from a normal distribution (He et al., fan out), linear layers from one with σ 0.01,
    biases from 0, as in torchvision.

    Parameters
    ----------
    blocks
        Outputs of the convolutions, block by block.
    hidden, pooled
        Width of the linear layers of the head, and side of the images that it is given.
    classes
        How many logits.
    has_head
        Whether three linear layers with dropout follow, as for ImageNet; otherwise one.
    batch_norm
        Whether a norm follows each convolution.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[int]],
        hidden: int,
        pooled: int,
        *,
        classes: int,
        has_head: bool,
        batch_norm: bool,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_features(blocks, batch_norm))
        channels = blocks[-1][-1]
        self.pool = nn.AdaptiveAvgPool2d(pooled if has_head else 1)
        self.classifier = (
            nn.Sequential(
                *(nn.Linear(channels * pooled**2, hidden), nn.ReLU(inplace=True), nn.Dropout()),
                *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout()),
                nn.Linear(hidden, classes),
            )
            if has_head
            else nn.Sequential(nn.Linear(channels, classes))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.classifier(self.pool(self.features(images)).flatten(1))
        return logits


def _features(blocks: Sequence[Sequence[int]], batch_norm: bool) -> list[nn.Module]:
    """Convolutions with ReLUs; each block ends with a pooling that halves the sides."""
    modules: list[nn.Module] = []
    inputs = 3
    for block in blocks:
        for outputs in block:
            modules.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            modules += [nn.BatchNorm2d(outputs)] if batch_norm else []
            modules.append(nn.ReLU(inplace=True))
            inputs = outputs
        modules.append(nn.MaxPool2d(2))
    return modules
