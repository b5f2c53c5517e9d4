"""Films of an agent: mp4 or GIF, with its probabilities below the picture on request."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sb3_cpp.checks import InvalidArgument

_TAKEN, _OTHER, _TEXT, _BACKGROUND = (213, 94, 0), (0, 114, 178), (30, 30, 30), (250, 250, 250)
_ROW = 18


def check_video(path: str | Path) -> Path:
    """Refuse early what could not be written after the last episode."""
    path = Path(path)
    if path.suffix not in (".mp4", ".gif"):
        raise InvalidArgument(f"--video must end in .mp4 or .gif, got {str(path)!r}")
    if path.suffix == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise InvalidArgument(
                "mp4 needs a further package: pip install 'sb3_cpp[video]'; or record a .gif"
            ) from None
    return path


def annotate(
    frame: np.ndarray, probabilities: Sequence[float] | None, action: int, title: str
) -> np.ndarray:
    """The frame with a line of text and a bar per action below it, the action taken in the warm colour."""
    rows = 1 + (len(probabilities) if probabilities is not None else 0)
    height, width = frame.shape[:2]
    canvas = Image.new("RGB", (width, height + rows * _ROW + 6), _BACKGROUND)
    canvas.paste(Image.fromarray(frame), (0, 0))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=12)
    draw.text((6, height + 3), title, fill=_TEXT, font=font)
    for a, p in enumerate([] if probabilities is None else probabilities):
        top = height + 3 + (a + 1) * _ROW
        draw.text((6, top), f"action {a}: {p:.3f}", fill=_TEXT, font=font)
        left, room = 110, max(width - 116, 1)
        draw.rectangle(
            (left, top + 3, left + room * p, top + _ROW - 5), fill=_TAKEN if a == action else _OTHER
        )
    return np.asarray(canvas)


def save_video(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    """Write the film in one go; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        first, *rest = [Image.fromarray(frame).quantize(64) for frame in frames]
        # A GIF counts in hundredths of a second, and browsers slow down below two of them
        first.save(path, save_all=True, append_images=rest, duration=max(1000 / fps, 20), loop=0)
        return
    import imageio_ffmpeg

    height, width = frames[0].shape[:2]
    even = (width - width % 2, height - height % 2)  # the codec wants even sides
    writer = imageio_ffmpeg.write_frames(str(path), even, fps=fps, macro_block_size=1)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[: even[1], : even[0]]))
    writer.close()
