"""torchvision's compiled operators are a CUDA build and do not load beside a CPU torch. Its import registers fakes for two
of them and fails without their definitions: they are given when it is first imported. Text models use neither."""

import importlib.abc
import sys


class _Definitions(importlib.abc.MetaPathFinder):
    library = None

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision" and self.library is None:
            sys.meta_path.remove(self)
            from torch.library import Library

            type(self).library = Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return


sys.meta_path.insert(0, _Definitions())
