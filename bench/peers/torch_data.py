"""How many pictures a second torchvision's loader reads, cuts and flips: what bench/data_speed.c
does, with its answer.

    build/peers/torch/bin/python bench/peers/torch_data.py FOLDER WORKERS
"""
import json
import sys
import time

import torch
from torchvision import datasets, transforms

torch.set_num_threads(1)


def main(folder, workers):
    steps = transforms.Compose([
        transforms.RandomCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder, steps), 64, shuffle=True,
                                         num_workers=workers)
    begin, count = time.perf_counter(), 0
    for pictures, _ in loader:
        count += len(pictures)
    print(json.dumps({'pictures': count,
                      'pictures_per_second': count / (time.perf_counter() - begin)}))


main(sys.argv[1], int(sys.argv[2]))
