"""Scripts written for pycaffe run unchanged: `python -m mgcaffe.pycaffe script.py`."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_USAGE
from mgcaffe.pycaffe import __main__
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "scripts"


def run(folder, *arguments, threads=1):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mgcaffe.pycaffe", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )


def test_net_surgery(tmp_path):
    result = run(tmp_path, SCRIPTS / "net_surgery.py", tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1:3] == [
        "fc6-conv weights are (16, 8, 6, 6), biases are (16,)",
        "fc7-conv weights are (10, 16, 1, 1), biases are (10,)",
    ]
    assert lines[3] == "heat map (10, 3, 3) (3, 3)"
    assert (tmp_path / "net_full_conv.caffemodel").is_file()


def test_feature_extraction(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    mean = caffe.io.array_to_blobproto(np.full((1, 1, 28, 28), 33.0))
    (tmp_path / "mean.binaryproto").write_bytes(mean.SerializeToString())
    script = (SCRIPTS / "feature_extraction.py").read_text()
    # LeNet reads grey images
    script = script.replace("load_image(image_file)", "load_image(image_file, color=False)")
    script = script.replace('transformer.set_channel_swap("data", (2, 1, 0))\n', "")
    (tmp_path / "features.py").write_text(script)
    result = run(tmp_path, "features.py", MODELS / "lenet" / "deploy.prototxt", "cat.png", "mean.binaryproto")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "class (50, 10) True"
    assert "conv1\t(50, 20, 24, 24)" in lines
    assert "ip1\t(500, 800) (500,)" in lines
    assert lines[-2:] == ["features (500,) True", "grew True"]
    assert result.stderr == ""


def test_a_net_from_netspec_learns_from_a_layer_in_python(tmp_path):
    result = run(tmp_path, SCRIPTS / "train_spec.py", tmp_path)
    assert result.returncode == 0, result.stderr
    losses, accuracy, distance, reloaded, files = result.stdout.splitlines()
    assert losses == "losses fall True"
    assert float(accuracy.split()[1]) >= 0.97
    assert float(distance.split()[1]) < 0.1
    assert float(reloaded.split()[1]) >= 0.97
    assert files == "files ['final.caffemodel']"
    assert "Iteration 50, lr = 0.1" in result.stderr
    assert "Iteration 50, Testing net (#0)" in result.stderr


def test_a_process_that_a_script_forks_can_run_nets(tmp_path):
    (tmp_path / "net.prototxt").write_text(
        """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 64 dim: 3 dim: 32 dim: 32 } } }
        layer { name: "conv" type: "Convolution" bottom: "x" top: "y"
          convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: "constant" value: 1 } } }"""
    )
    (tmp_path / "forks.py").write_text(
        """import multiprocessing
import warnings
import caffe

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of every fork beside threads

def predict(net, answers):
    answers.put([float(each.forward()["y"].max()) for each in (net, caffe.Net("net.prototxt", caffe.TEST))])

fork = multiprocessing.get_context("fork")
net = caffe.Net("net.prototxt", caffe.TEST)
net.blobs["x"].data[...] = 1
net.forward()
answers = fork.Queue()
child = fork.Process(target=predict, args=(net, answers), daemon=True)
child.start()
print(answers.get(timeout=60))
"""
    )
    result = run(tmp_path, "forks.py", threads=2)
    assert result.stdout == "[27.0, 0.0]\n", result.stderr


def test_the_name_caffe_covers_the_submodules(tmp_path):
    (tmp_path / "names.py").write_text(
        "import sys\n"
        "import caffe, caffe.io, caffe.draw, caffe.net_spec, caffe.coord_map, caffe.classifier, caffe.detector\n"
        "import mgcaffe.pycaffe, mgcaffe.pycaffe.io\n"
        "from caffe import layers as L, params as P, Net, Classifier, SGDSolver, TRAIN\n"
        "from caffe.pycaffe import Net as Net2\n"
        "from caffe.proto import caffe_pb2\n"
        "from caffe.coord_map import crop\n"
        "assert caffe is mgcaffe.pycaffe and caffe.io is mgcaffe.pycaffe.io and Net is Net2\n"
        "assert caffe_pb2.TRAIN == caffe_pb2.Phase.Value('TRAIN') == caffe.TRAIN == 0\n"
        "import caffe.pycaffe, caffe._caffe as native\n"
        "from caffe.proto.caffe_pb2 import *\n"
        "assert NetParameter is caffe_pb2.NetParameter and TEST == 1\n"
        "assert caffe.pycaffe.Net is native.Net is Net2\n"
        "assert caffe_pb2.LayerParameter(name='x').name == 'x'\n"
        "print(__name__, sys.argv, caffe.__version__)\n"
    )
    result = run(tmp_path, "names.py", "a", "-b")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "__main__ ['names.py', 'a', '-b'] 1.0.0\n"


def test_types_of_blob_lists_can_be_imported(tmp_path):
    """The triplet losses of face recognition do, and use neither."""
    (tmp_path / "script.py").write_text(
        "import caffe\n"
        "from caffe._caffe import BlobVec, RawBlobVec\n"
        "class Ones(caffe.Layer):\n"
        "    def setup(self, bottom, top):\n"
        "        assert isinstance(top, RawBlobVec)\n"
        "        top[0].reshape(2)\n"
        "    def reshape(self, bottom, top): pass\n"
        "import sys\n"
        "sys.modules['ones'] = sys.modules[__name__]\n"
        'text = \'layer { type: "Python" top: "a" python_param { module: "ones" layer: "Ones" } }\'\n'
        "open('net.prototxt', 'w').write(text)\n"
        "print(caffe.Net('net.prototxt', caffe.TRAIN).blobs['a'].data.shape)\n"
    )
    result = run(tmp_path, "script.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "(2,)\n"


def test_a_users_mistake_ends_a_script_with_its_own_lines_and_one_message(tmp_path):
    (tmp_path / "net.prototxt").write_text('layer {\n  name: "a" type: "Convolutoin" top: "a"\n}\n')
    (tmp_path / "wrong.py").write_text("import caffe\nnet = caffe.Net('net.prototxt', caffe.TEST)\n")
    result = run(tmp_path, "wrong.py")
    assert result.returncode == EXIT_BAD_INPUT
    lines = result.stderr.splitlines()
    assert "wrong.py" in lines[0]
    assert lines[1].strip() == "net = caffe.Net('net.prototxt', caffe.TEST)"
    message = next(line for line in lines[2:] if not line.startswith(" "))
    assert message.startswith("net.prototxt:2:13: unknown layer type 'Convolutoin'")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("arguments", "code"), [([], EXIT_USAGE), (["--help"], 0), (["nowhere.py"], EXIT_USAGE)])
def test_what_can_be_asked_of_the_runner(capsys, arguments, code):
    assert __main__.main(arguments) == code
    out, errors = capsys.readouterr()
    assert "usage:" in out or "nowhere.py" in errors


def test_the_exit_code_of_a_script_is_kept(tmp_path):
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    assert run(tmp_path, "leaves.py").returncode == 3


@pytest.fixture
def _own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)  # torch.distributed puts the rank before each line


@pytest.fixture
def errors_of(_own_path, tmp_path, capsys):
    """Runs the text of a script that ends with an exception, and returns what it has written to standard error."""

    def errors_of(text):
        script = tmp_path / "old.py"
        script.write_text(text)
        assert __main__.main([str(script)]) == EXIT_FAILED
        return capsys.readouterr().err

    return errors_of


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("print 'loss'\n", "SyntaxError: Missing parentheses in call to 'print'"),
        ("import sys\nprint >> sys.stderr, 'loss'\n", "TypeError: unsupported operand type(s) for >>"),
        ("{}.keys()[0]\n", "TypeError: 'dict_keys' object is not subscriptable"),
        ("for i in xrange(2):\n    pass\n", "NameError: name 'xrange' is not defined"),
        ("{}.iteritems()\n", "AttributeError: 'dict' object has no attribute 'iteritems'"),
        ("import cPickle\n", "ModuleNotFoundError: No module named 'cPickle'"),
        ("from itertools import izip\n", "ImportError: cannot import name 'izip'"),
        ("import itertools\nitertools.imap\n", "AttributeError: module 'itertools' has no attribute 'imap'"),
        ("import sys\nsys.maxint\n", "AttributeError: module 'sys' has no attribute 'maxint'"),
        ("{}.keys().sort()\n", "AttributeError: 'dict_keys' object has no attribute 'sort'"),
        ("range(3) + [3]\n", "TypeError: unsupported operand type(s) for +: 'range' and 'list'"),
        ("range(3).extend([3])\n", "AttributeError: 'range' object has no attribute 'extend'"),
        ("len(zip('ab', 'cd'))\n", "TypeError: object of type 'zip' has no len()"),
        ("map(int, '12')[0]\n", "TypeError: 'map' object is not subscriptable"),
        ("seed = 10L\n", "SyntaxError: invalid decimal literal"),
        ("mask = 0xFFL\n", "SyntaxError: invalid hexadecimal literal"),
        ("mode = 0777\n", "SyntaxError: leading zeros in decimal integer literals"),
    ],
)
def test_a_script_in_python_2_is_told_how_it_becomes_python_3(errors_of, text, cause):
    errors = errors_of(text)
    assert cause in errors
    assert errors.splitlines()[-1].startswith("this is Python 2: 2to3 -w FILE")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("range(6 / 2)\n", "if this is Python 2, the division of whole numbers has to be written as //"),
        ("n = 6\n[0] * (n / 2)\n", "if this is Python 2, the division of whole numbers has to be written as //"),
        ("'abcd'[4 / 2:]\n", "if this is Python 2, the division of whole numbers has to be written as //"),
        ("import numpy as np\nnp.zeros(4)[4 / 2]\n", "if this is Python 2, the division of whole numbers has"),
        ("import numpy as np\nnp.zeros((4 / 2, 3))\n", "if this is Python 2, the division of whole numbers has"),
        (
            "import string\nstring.letters\n",
            "this is Python 2: write string.ascii_letters in place of string.letters",
        ),
        (
            "import string\nstring.join(['a'], '')\n",
            "this is Python 2: write SEPARATOR.join(WORDS) in place of string.join",
        ),
        ("if True:\n        x = 1\n\ty = 2\n", "this is Python 2, where a tab stands for up to 8 spaces: expand FILE"),
    ],
)
def test_what_2to3_leaves_alone_has_a_hint_of_its_own(errors_of, text, hint):
    assert errors_of(text).splitlines()[-1].startswith(hint)


@pytest.mark.usefixtures("_own_path")
@pytest.mark.parametrize(
    ("name", "text", "last"),
    [
        (
            "yaml",
            "def load(stream, Loader):\n    pass\n",
            "yaml.load(TEXT) is of PyYAML before 6: write yaml.safe_load",
        ),
        ("yaml", None, "install it for this Python: pip install PyYAML"),
        ("cv2", None, "install it for this Python: pip install opencv-python-headless"),
    ],
)
def test_modules_that_scripts_for_pycaffe_import_have_hints(tmp_path, capsys, monkeypatch, name, text, last):
    if text is None:
        monkeypatch.setitem(sys.modules, name, None)
    else:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)
    script = tmp_path / "old.py"
    script.write_text(f"import {name}\n{name}.load('{{}}')\n")
    assert __main__.main([str(script)]) == EXIT_FAILED
    sys.modules.pop(name, None)
    assert capsys.readouterr().err.splitlines()[-1].startswith(last)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("print(undefined)\n", "NameError: name 'undefined' is not defined"),
        ("range(2.5)  # 5 / 2\n", "TypeError: 'float' object cannot be interpreted as an integer"),
        ("range(7.5 // 2 * len('a/b'))\n", "TypeError: 'float' object cannot be interpreted as an integer"),
        ("rate = 10x\n", "SyntaxError: invalid decimal literal"),
    ],
)
def test_other_exceptions_of_a_script_say_nothing_of_python_2(errors_of, text, last):
    assert errors_of(text).splitlines()[-1] == last


def test_the_traceback_of_a_script_begins_with_its_own_lines(tmp_path):
    (tmp_path / "new.py").write_text("def f():\n    return 1 / 0\n\n\nf()\n")
    result = run(tmp_path, "new.py")
    assert result.returncode == EXIT_FAILED
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('new.py", line 5, in <module>')
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "runpy" not in result.stderr


@pytest.mark.usefixtures("_own_path")
def test_a_scripts_own_hook_sees_its_exception(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    script = tmp_path / "new.py"
    script.write_text("import sys\nsys.excepthook = lambda *parts: print(parts[0].__name__)\n1 / 0\n")
    assert __main__.main([str(script)]) == EXIT_FAILED
    assert capsys.readouterr().out == "ZeroDivisionError\n"
