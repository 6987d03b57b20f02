"""A ConvNeXt in (batch, channels, height, width) throughout: 1x1 convolutions where others use linear layers."""

import torch
from torch import nn
from torch.nn.functional import conv2d, gelu


class ChannelNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.slope, self.level = nn.Parameter(torch.ones(channels, 1, 1)), nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, image):
        centred = image - image.mean(1, keepdim=True)
        spread = centred.square().mean(1, keepdim=True)
        return self.slope * centred * torch.rsqrt(spread + 1e-6) + self.level


class Cell(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, groups=channels)
        self.norm = ChannelNorm(channels)
        self.grow, self.shrink = nn.Conv2d(channels, 4 * channels, 1), nn.Conv2d(4 * channels, channels, 1)
        self.strength = nn.Parameter(torch.ones(channels))

    def forward(self, image):
        padded = nn.functional.pad(image, (3, 3, 3, 3))
        change = self.depth(padded)
        change = self.norm(change)
        change = self.grow(change)
        change = gelu(change)
        change = self.shrink(change)
        change = change * self.strength[:, None, None]
        return image + change


class Halve(nn.Module):
    def __init__(self, channels, new_channels, step):
        super().__init__()
        self.norm, self.step = ChannelNorm(channels), step
        self.kernel = nn.Parameter(torch.empty(new_channels, channels, step, step))
        self.bias = nn.Parameter(torch.empty(new_channels))

    def forward(self, image):
        image = self.norm(image)
        return conv2d(image, self.kernel, self.bias, stride=self.step)


class ChannelsFirst(nn.Module):
    def __init__(self, widths, depths, patch, classes):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, widths[0], patch, patch), ChannelNorm(widths[0])
        parts = []
        for number, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            parts += [Halve(widths[number - 1], width, 2)] if number else []
            parts += [Cell(width) for _ in range(depth)]
        self.trunk = nn.ModuleList(parts)
        self.weight, self.bias = nn.Parameter(torch.ones(widths[-1])), nn.Parameter(torch.zeros(widths[-1]))
        self.answer = nn.Linear(widths[-1], classes)

    def forward(self, image):
        image = self.stem(image)
        image = self.stem_norm(image)
        for part in self.trunk:
            image = part(image)
        pooled = image.flatten(2).mean(2)
        pooled = nn.functional.layer_norm(pooled, pooled.shape[1:], self.weight, self.bias, 1e-12)
        return self.answer(pooled)
