"""The answers of the embeddings endpoint, with the bundled model, without a network."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from langchain_hindsight.embedded.embeddings import (
    DIMENSIONS,
    RequestError,
    answer,
    load_wordllama,
)


@pytest.fixture(scope="module")
def embed():
    return load_wordllama()


def _vectors(response):
    return np.array([row["embedding"] for row in response["data"]])


def test_a_batch_is_answered_in_its_order(embed):
    texts = ["a red apple", "the deploy pipeline", "a green apple"]
    together = _vectors(answer({"input": texts}, embed))
    alone = [_vectors(answer({"input": text}, embed))[0] for text in texts]

    assert together.shape == (3, DIMENSIONS)
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_what_is_alike_is_nearer_than_what_is_not(embed):
    apple, deploy, other_apple = _vectors(
        answer({"input": ["a red apple", "the deploy pipeline", "a green apple"]}, embed)
    )

    assert apple @ other_apple > apple @ deploy


def test_base64_holds_the_same_little_endian_floats(embed):
    floats = _vectors(answer({"input": "hello"}, embed))[0]
    encoded = answer({"input": "hello", "encoding_format": "base64"}, embed)["data"][0]["embedding"]

    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), floats)


def test_vectors_have_length_one_and_an_empty_text_has_the_zero_vector(embed):
    empty, text = _vectors(answer({"input": ["", "hello"]}, embed))

    assert not empty.any()
    assert np.linalg.norm(text) == pytest.approx(1, abs=1e-5)


def test_usage_counts_each_text_without_its_padding(embed):
    def tokens(given):
        return answer({"input": given}, embed)["usage"]["total_tokens"]

    long = "a much longer text about several things"
    assert tokens(["hi", long]) == tokens("hi") + tokens(long) > tokens("hi") > 0


def test_no_text_gives_no_vector(embed):
    assert answer({"input": []}, embed)["data"] == []


@pytest.mark.parametrize(
    "request_",
    [
        [],
        {},
        {"input": [[1, 2, 3]]},
        {"input": "x", "encoding_format": "hex"},
        {"input": "x", "dimensions": 64},
    ],
)
def test_what_is_no_such_request_is_refused(embed, request_):
    with pytest.raises(RequestError):
        answer(request_, embed)
