"""What classifiers of images have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from netfold.sim.workload.model import Data, Model, TaskSettings

if TYPE_CHECKING:
    from netfold.sim.workload.model import Task


SMALL_IMAGES = (
    Data("photos", "CIFAR-10: patches of ten photos, each a class"),
    Data("mnist-5k", "CIFAR-10: grey digits with a margin, in three equal channels"),
    Data("fashion-mnist", "CIFAR-10: grey pictures of clothes with a margin, in three equal channels"),
)
LARGE_IMAGES = (Data("photos", "ImageNet: crops of ten photos, each a class"),)


class ImageModel(Model):
    """A classifier of images `(batch, channels, side, side)`."""

    channels: ClassVar[int]
    side: ClassVar[int]  # pixels
    metric: ClassVar[str] = "accuracy"

    def task(self, settings: TaskSettings) -> Task:
        """Which class is shown?"""
        from netfold.sim.workload.data_readers import load_pictures
        from netfold.sim.workload.tasks import ImagesTask

        return ImagesTask(load_pictures(settings.data, self.channels, self.side), self.module, settings)
