"""Encoder, residual vector quantiser with codebooks that are moving averages, decoder."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_FEATURES = 32
Reduce = Callable[[Tensor], object]


class Codebook(nn.Module):
    """Codes that follow the mean of what is mapped to them; a code that nothing is mapped to is given a new place.

    `reduce` sums a tensor in place over all ranks, so that all have the same codes.
    """

    codes: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, num_codes: int, size: int, reduce: Reduce, decay: float = 0.95) -> None:
        super().__init__()
        self._reduce, self._decay = reduce, decay
        self.register_buffer("codes", torch.randn(num_codes, size) * 0.01)
        self.register_buffer("counts", torch.zeros(num_codes))
        self.register_buffer("sums", torch.zeros(num_codes, size))

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest code of each vector, and its number."""
        numbers = torch.cdist(vectors, self.codes).argmin(1)
        found = self.codes[numbers]
        if self.training:
            self._follow(vectors.detach(), numbers)
        return found, numbers

    @torch.no_grad()
    def _follow(self, vectors: Tensor, numbers: Tensor) -> None:
        num_codes = len(self.codes)
        places = vectors[torch.randint(len(vectors), (num_codes,), device=vectors.device)]
        # One call for all: the counts, the sums, places for unused codes and the number of ranks that propose them.
        seen = functional.one_hot(numbers, num_codes).to(vectors.dtype)
        said = torch.cat([seen.sum(0)[:, None], seen.T @ vectors, places, vectors.new_ones(num_codes, 1)], 1)
        self._reduce(said)
        counts, sums, places, ranks = said.split([1, vectors.shape[1], vectors.shape[1], 1], 1)
        self.counts.lerp_(counts[:, 0], 1 - self._decay)
        self.sums.lerp_(sums, 1 - self._decay)
        is_used = self.counts > 0.01
        self.codes.copy_(
            torch.where(is_used[:, None], self.sums / self.counts[:, None].clamp(min=1e-6), places / ranks)
        )
        self.counts[~is_used] = 1.0
        self.sums[~is_used] = self.codes[~is_used]


class Quantiser(nn.Module):
    """Each codebook quantises what the ones before it left over."""

    def __init__(self, num_codebooks: int, num_codes: int, size: int, reduce: Reduce) -> None:
        super().__init__()
        self.codebooks = nn.ModuleList(Codebook(num_codes, size, reduce) for _ in range(num_codebooks))

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the codes with the gradient passed through, the commitment loss, the numbers by codebook."""
        left, total, commitment, numbers = vectors, torch.zeros_like(vectors), vectors.new_zeros(()), []
        for codebook in self.codebooks:
            found, number = codebook(left)
            commitment = commitment + functional.mse_loss(left, found.detach())
            total, left = total + found.detach(), left - found.detach()
            numbers.append(number)
        return vectors + (total - vectors).detach(), commitment / len(self.codebooks), torch.stack(numbers)


class Codec(nn.Module):
    """Clips (clips, frames, features) to codes and back."""

    def __init__(self, num_codebooks: int, num_codes: int, reduce: Reduce, size: int = 16, width: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(NUM_FEATURES, width, 5, padding=2), nn.GELU(), nn.Conv1d(width, size, 3, padding=1)
        )
        self.quantiser = Quantiser(num_codebooks, num_codes, size, reduce)
        self.decoder = nn.Sequential(
            nn.Conv1d(size, width, 3, padding=1), nn.GELU(), nn.Conv1d(width, NUM_FEATURES, 5, padding=2)
        )

    def forward(self, clips: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction loss, the commitment loss and the numbers of the codes (codebooks, vectors)."""
        hidden = self.encoder(clips.transpose(1, 2)).transpose(1, 2)
        quantised, commitment, numbers = self.quantiser(hidden.reshape(-1, hidden.shape[-1]))
        rebuilt = self.decoder(quantised.view_as(hidden).transpose(1, 2)).transpose(1, 2)
        return functional.mse_loss(rebuilt, clips), commitment, numbers
