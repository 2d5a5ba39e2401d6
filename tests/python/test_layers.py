# SPDX-License-Identifier: Apache-2.0
"""tools/check_layers.py finds what it is there for."""

import check_layers
import pytest

TABLE = check_layers.load_table(check_layers.ROOT / "tools" / "layers.toml")
TAG = "// SPDX-License-Identifier: Apache-2.0\n"


def problems(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return check_layers.check(tmp_path, TABLE)


def test_the_project_keeps_its_own_rules():
    assert check_layers.main() == 0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("base/a.h", TAG + '#include "hvd/loop/loop.h"\n', "may include only nothing"),
        ("controller/a.cc", TAG + '#include "hvd/net/socket.h"\n', "controller may include only base, wire"),
        ("collective/a.cc", TAG + '#include "hvd/transport/tcp/pair.h"\n', "for transport and engine only"),
        ("kernel/a.cc", TAG + '#include "hvd/hvd.h"\n', "public header"),
        ("engine/a.cc", TAG + 'const char* v = std::getenv("X");\n', "reads the environment"),
        ("engine/a.cc", TAG + "\n" * 400, "401 lines"),
        ("engine/a.cc", "int x;\n", "SPDX"),
        ("odd/a.cc", TAG, "not in tools/layers.toml"),
        ("loop/a.cc", TAG + "int x = hvd::wire::kMaxDims;\n", "uses wire::, which loop may not"),
        ("jax/a.cc", TAG + "engine::Engine* made;\n", "uses engine::, which jax may not"),
    ],
)
def test_finds(tmp_path, name, text, expected):
    found = problems(tmp_path, name, text)
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base/config.cc", TAG + 'std::getenv("X");\n'),
        ("engine/a.cc", TAG + '#include "hvd/transport/tcp/pair.h"\n'),
        ("transport/factory.cc", TAG + '#include "hvd/transport/tcp/pair.h"\n'),
        ("c_api/a.cc", TAG + '#include "hvd/hvd.h"\n'),
        ("engine/a.cc", TAG + "// Long because: it is a table.\n" + "\n" * 500),
        ("engine/b.cc", TAG + "// getenv() is not called here\n"),
        ("loop/b.cc", TAG + 'Say("wire::Text");  // as wire::Text\n'),
        ("loop/c.cc", TAG + "int x = other::wire::kMaxDims;\n"),
    ],
)
def test_accepts(tmp_path, name, text):
    assert problems(tmp_path, name, text) == []
