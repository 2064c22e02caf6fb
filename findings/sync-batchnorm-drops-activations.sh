#!/usr/bin/env bash
# sync-batchnorm-drops-activations: converting a model to SyncBatchNorm takes the activations out of it
#
# Guess: torch.nn.SyncBatchNorm.convert_sync_batchnorm, which PyTorch documents for training over ranks, changes whose rows
# the statistics are of, and nothing else; what it cannot convert, as a subclass of BatchNorm2d, it leaves or refuses.
# Seen: each module that is some BatchNorm becomes a plain SyncBatchNorm, also one of a subclass whose forward does more. timm
# has its activations in there: an EfficientNet, a MobileNet or a DenseNet loses all that follow a normalization, in silence, as
# no shape changes, and a hook on such a module is gone. The ResNets, which a test may take, have them in modules of their own.
# Known as pytorch#187298 (open). Better: timm.layers.convert_sync_batchnorm, which keeps them.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" torchvision==0.29.2 pillow==13.0.0 timm==1.0.31 pyyaml==6.0.4 huggingface_hub==2.4.0 \
  safetensors==0.8.0 hf_xet==1.8.0 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 h11==0.16.0 idna==3.20 \
  certifi==2026.10.19.post1 truststore==0.10.5 click==8.5.1 packaging==26.4 tqdm==4.70.1
program <<'PY'
import torch
from timm import create_model
from timm.layers import convert_sync_batchnorm

picture = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)


def with_weights(name):
    model = create_model(name).eval()
    for number, parameter in enumerate(model.parameters()):
        torch.nn.init.normal_(parameter, 0, 0.5, generator=torch.Generator().manual_seed(number))
    return model


with torch.no_grad():
    for name in ("resnet18", "efficientnet_b0", "mobilenetv3_small_100", "densenet121"):
        before = with_weights(name)(picture)
        by_torch = torch.nn.SyncBatchNorm.convert_sync_batchnorm(with_weights(name))(picture)
        by_timm = convert_sync_batchnorm(with_weights(name))(picture)
        print("%s: the same by torch %s, by timm %s" % (name, torch.equal(before, by_torch), torch.equal(before, by_timm)))

hooked = torch.nn.BatchNorm2d(1)
hooked.register_forward_hook(lambda module, inputs, output: output.relu())
converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(hooked)).eval()
print("with a hook that cuts at 0:", converted(torch.full((1, 1, 1, 1), -1.0)).item())
PY
expect <<'OUT'
resnet18: the same by torch True, by timm True
efficientnet_b0: the same by torch False, by timm True
mobilenetv3_small_100: the same by torch False, by timm True
densenet121: the same by torch False, by timm True
with a hook that cuts at 0: -0.9999949932098389
OUT
