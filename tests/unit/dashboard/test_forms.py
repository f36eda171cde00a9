"""The body of a form: how large it may be, and of what kind."""

from __future__ import annotations

import pytest

from tests.unit.dashboard.page_client import Desk

FORM = "application/x-www-form-urlencoded"
PATHS = ("/sign-in", "/sign-out", "/pools/gpus/resize", "/requests/some/cancel")


@pytest.mark.parametrize("path", PATHS)
def test_a_form_has_so_many_bytes_and_fields(desk: Desk, path: str) -> None:
    post = desk.visitor().http.post
    assert post(path, data=b"a=" + b"x" * (64 * 1024 - 2), content_type=FORM).status_code in (303, 403)
    assert post(path, data=b"a=" + b"x" * (64 * 1024 - 1), content_type=FORM).status_code == 413
    assert post(path, data=b"a&" * 499, content_type=FORM).status_code in (303, 403)
    assert post(path, data=b"a&" * 500, content_type=FORM).status_code == 413


@pytest.mark.parametrize("path", PATHS)
def test_a_form_is_of_one_kind(desk: Desk, path: str) -> None:
    post = desk.visitor().http.post
    assert post(path, data=b"{}", content_type="application/json").status_code == 415
    multipart = b'--x\r\nContent-Disposition: form-data; name="token"; filename="f"\r\n\r\n1\r\n--x--\r\n'
    assert post(path, data=multipart, content_type="multipart/form-data; boundary=x").status_code == 415
