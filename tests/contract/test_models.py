"""Models by name, at the sizes that recipes ask for."""

import re

import pytest
import torch
from ddlbench.plan import first_guess
from ddlbench.train import models

from tests.facts import missing, refuses


@pytest.mark.parametrize(
    "name",
    [
        "lenet",
        "resnet8_half",
        "resnet18",
        "squeezenet1_1",
        "vit_tiny_patch16_224",
        "swin_tiny_patch4_window7_224",
    ],
)
def test_pictures_of_32_pixels(name: str) -> None:
    """Transformers are told the size: timm makes them for 224 pixels otherwise, and they refuse all
    others.
    """
    model = models.build(name, 7, 32)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("halonet26t", 224, "; timm made it for 256: AssertionError$"),  # which has no words
        ("crossvit_tiny_240", 224, "; timm made it for 240: RuntimeError: .*length 337"),
        ("lenet", 8, ": RuntimeError: .*[Kk]ernel size"),
    ],
)
def test_a_model_that_refuses_a_size_is_named_with_it(name: str, size: int, says: str) -> None:
    said = models.complaint(name, size)
    assert said is not None and "\n" not in said
    assert (
        re.search(says, said)
        and missing(said, f"model {name}", f"{size} pixels", "image_size") == []
    )
    assert models.complaint("resnet18", size) is None


def test_a_size_that_it_was_made_for_changes_nothing() -> None:
    torch.manual_seed(0)
    ours = models.build("vit_tiny_patch16_224", 7, 224)
    import timm

    torch.manual_seed(0)
    plain = timm.create_model("vit_tiny_patch16_224", num_classes=7)
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "without"), [("resnet8_half", 1.0), ("resnet18", 0.0), ("resnet50", 0.0)]
)
def test_the_last_norm_of_residual_blocks_begins_as_the_recipe_says(
    name: str, without: float
) -> None:
    """And nothing else changes: no weight is drawn differently."""
    weights = {}
    for choice in (None, True, False):
        torch.manual_seed(0)
        weights[choice] = dict(models.build(name, 7, 32, choice).named_parameters())
    differ = [
        key for key, weight in weights[True].items() if not torch.equal(weight, weights[False][key])
    ]
    assert (
        len(differ) == {"resnet8_half": 3, "resnet18": 8, "resnet50": 16}[name]
    )  # its residual blocks
    for choice, begins in ((True, 0.0), (False, 1.0), (None, without)):
        assert all((weights[choice][key] == begins).all() for key in differ)
    assert all(
        torch.equal(weights[None][key], weights[True][key])
        for key in weights[True]
        if key not in differ
    )


@pytest.mark.parametrize("name", ["lenet", "squeezenet1_1", "vit_tiny_patch16_224", "densenet121"])
def test_models_that_cannot_choose_say_so(name: str) -> None:
    with refuses(RuntimeError, "zero_init_last: ", f"model {name}", "null"):
        models.build(name, 7, 32, True)


def test_lenet5_has_the_weights_of_its_sources() -> None:
    """LeCun et al. 1998 with one input channel, and DeepSpeed's example with three; our padded one
    has more.
    """

    def weights(name: str) -> int:
        return sum(one.numel() for one in models.build(name, 10, 32).parameters())

    assert weights("lenet5") == 62_006
    assert weights("lenet5") - 2 * 6 * 5 * 5 == 61_706
    assert weights("lenet") == 83_126


def test_operations_of_lenet_by_hand() -> None:
    """Multiplications and additions; the pictures themselves get no gradient, everything else twice
    the forward's.
    """
    first = 2 * 32 * 32 * 6 * 5 * 5 * 3
    others = 2 * (12 * 12 * 16 * 5 * 5 * 6 + 16 * 36 * 120 + 120 * 84 + 84 * 10)
    assert models.flops_per_image(models.build("lenet", 10, 32), 32) == 2 * first + 3 * others


def test_the_small_resnet_is_the_papers_at_half_width() -> None:
    """He et al. 2016, section 4.2 with n = 1: 8 layers with weights, no weights in shortcuts; sides
    32, 16 and 8.
    """
    model = models.build("resnet8_half", 10, 32).eval()
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(layers) == 8
    weights = 9 * (3 * 8 + 2 * 8 * 8 + 8 * 16 + 16 * 16 + 16 * 32 + 32 * 32) + 32 * 10 + 10
    norms = 2 * (3 * 8 + 2 * 16 + 2 * 32)
    assert sum(p.numel() for p in model.parameters()) == weights + norms
    first = 2 * 32 * 32 * 9 * 3 * 8  # the pictures themselves get no gradient
    stages = 32**2 * 2 * 8 * 8 + 16**2 * (8 * 16 + 16 * 16) + 8**2 * (16 * 32 + 32 * 32)
    assert models.flops_per_image(model, 32) == 2 * first + 3 * 2 * (9 * stages + 32 * 10)


def test_a_blocks_shortcut_is_every_second_pixel_padded_with_zeros() -> None:
    """With convolutions that give nothing, a block is its shortcut."""
    block = models.build("resnet8_half", 10, 32)[4].eval()
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    pictures = torch.rand(2, 8, 32, 32)
    out = block(pictures)
    assert torch.equal(out[:, :8], pictures[:, :, ::2, ::2])
    assert out.shape == (2, 16, 16, 16) and not out[:, 8:].any()


def test_squeezenet_is_the_papers_with_less_work() -> None:
    """torchvision says of version 1.1: 1 235 496 parameters with 1000 classes; every one of them
    learns.
    """
    assert (
        sum(p.numel() for p in models.build("squeezenet1_1", 1000, 224).parameters()) == 1_235_496
    )
    model = models.build("squeezenet1_1", 10, 32)
    model(torch.rand(2, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_operations_of_resnet50_are_those_published() -> None:
    """He et al. 2016 (arXiv:1512.03385, Table 1): 3.8e9 multiply-adds forward, with the stride in
    the blocks' 1x1; with it in their 3x3, as in timm and MLPerf ("v1.5"), 4.1e9 (NVIDIA
    DeepLearningExamples).
    """
    operations = models.flops_per_image(models.build("resnet50", 1000, 224), 224)
    assert operations == pytest.approx(3 * 2 * 4.1e9, rel=0.02)


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("lenet", "0"),
        ("resnet50", "conv1"),
        ("resnext50_32x4d", "conv1"),  # grouped
        ("efficientnet_b0", "conv_stem"),  # depthwise, as the next four
        ("mobilenetv2_100", "conv_stem"),
        ("mobilenetv3_small_100", "conv_stem"),
        ("convnext_tiny", "stem.0"),
        ("coat_lite_small", "patch_embed1.proj"),
        ("densenet121", "features.conv0"),
        (
            "cait_xxs24_224",
            "patch_embed.proj",
        ),  # attention; a parameter of it goes into a module as it is
    ],
)
def test_training_takes_three_times_the_forward_pass_less_the_first_layer(
    name: str, first: str
) -> None:
    """Each layer's weights and inputs get a gradient, at the price of its forward pass; pictures
    get none.
    """
    size = 32 if name == "lenet" else 224
    with torch.device("meta"):
        model = models.build(name, 10, size)
    forward = models.forward_flops(model, size)
    assert models.flops_per_image(model, size) == pytest.approx(
        3 * forward[""] - forward[first], rel=1e-3
    )


@pytest.mark.parametrize(("model", "operations"), first_guess.OWN.items(), ids=str)
def test_first_guesses_know_the_operations_of_our_own_models(
    model: tuple[str, int], operations: float
) -> None:
    """The plan has no torch to count them."""
    name, size = model
    assert models.forward_flops(models.build(name, 10, size), size)[""] == pytest.approx(
        operations, rel=0.01
    )


def test_counting_operations_changes_nothing() -> None:
    """Neither the model nor the random numbers that follow; attention counts too."""
    torch.manual_seed(0)
    model = models.build("vit_tiny_patch16_224", 10, 32).eval()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    operations = models.flops_per_image(model, 32)
    assert torch.equal(state, torch.get_rng_state()) and not model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    # 12 blocks of width 192 over 5 tokens: 12 width^2 weights a token, and two products of
    # attention.
    blocks = 12 * 2 * (5 * 12 * 192**2 + 2 * 5 * 5 * 192)
    assert operations == pytest.approx(3 * blocks, rel=0.03)
