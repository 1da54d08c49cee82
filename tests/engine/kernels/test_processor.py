"""What is read of /proc/cpuinfo, and the processors that multiply fast."""

import pytest

from mgcaffe.engine.kernels import processor

TEXT = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512_bf16

processor\t: 1
vendor_id\t: AuthenticAMD
model name\t: another
"""


@pytest.fixture
def cpuinfo(monkeypatch):
    """Return a function that sets what /proc/cpuinfo holds; None: it cannot be read."""

    def set_text(text):
        def read(self, **_):
            if text is None:
                raise FileNotFoundError(str(self))
            return text

        monkeypatch.setattr(processor.Path, "read_text", read)
        clear()

    def clear():
        processor.fields.cache_clear()
        processor.flags.cache_clear()

    yield set_text
    monkeypatch.undo()
    clear()


def test_the_first_processor_is_described(cpuinfo):
    cpuinfo(TEXT)
    assert processor.name() == "Intel(R) Xeon(R) Processor (family 6, model 207)"
    assert processor.flags() == {"fpu", "avx2", "avx512_bf16"}
    assert processor.multiplies_fast(processor.fields(), "AVX512", has_mkl=True)


def test_arms_kernels_say_features(cpuinfo):
    cpuinfo("processor: 0\nBogoMIPS: 50\nFeatures: fp asimd bf16\n")
    assert processor.flags() == {"fp", "asimd", "bf16"}


def test_nothing_is_known_without_the_file(cpuinfo):
    cpuinfo(None)
    assert processor.flags() == frozenset()
    assert processor.name() == processor.os.uname().machine


@pytest.mark.parametrize(
    ("vendor", "capability", "has_mkl", "expected"),
    [
        ("GenuineIntel", "AVX512", True, True),
        ("GenuineIntel", "AVX512", False, False),
        ("AuthenticAMD", "AVX512", True, False),
        ("AuthenticAMD", "AVX2", True, True),
        ("GenuineIntel", "DEFAULT", True, False),
    ],
)
def test_mm_is_fast_with_avx2_and_with_mkl_on_intels_processors(vendor, capability, has_mkl, expected):
    assert processor.multiplies_fast({"vendor_id": vendor}, capability, has_mkl) == expected


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "avx2 avx512_bf16", True),
        ("GenuineIntel", "avx2 avx512_bf16", False),
        ("GenuineIntel", "avx512_bf16 amx_bf16", True),
        ("AuthenticAMD", "avx2", False),
    ],
)
def test_which_processors_multiply_fast_in_bf16(cpuinfo, vendor, flags, expected):
    cpuinfo(f"vendor_id : {vendor}\nflags : {flags}\n")
    assert processor.multiplies_bf16() == expected


def test_arms_processors_with_the_instructions_multiply_fast_in_bf16(cpuinfo):
    cpuinfo("Features : fp asimd bf16\n")
    assert processor.multiplies_bf16()
