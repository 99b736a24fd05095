"""Settings from environment variables: what is accepted, and what the refusals say."""

import os
import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.config import env

NAME = "UNSQUEEZE_X"


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch):
    return lambda value, name=NAME: monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("found", "value"), [("1", True), ("Yes", True), ("off", False), ("", True), (" false ", False)]
)
def test_flag(put, found: str, value: bool) -> None:
    put(found)
    assert env.flag(NAME, True) is value


def test_a_wrong_flag_names_variable_value_and_what_is_accepted(put) -> None:
    put("maybe")
    with pytest.raises(
        ImproperlyConfigured, match="UNSQUEEZE_X is 'maybe'; accepted are 1, true, yes, on and 0, false, no, off"
    ):
        env.flag(NAME)


@pytest.mark.parametrize("found", ["ten", "1.5", "0"])
def test_a_wrong_number_is_refused(put, found: str) -> None:
    put(found)
    with pytest.raises(
        ImproperlyConfigured, match=f"UNSQUEEZE_X is '{found}'; accepted is a whole number of at least 1"
    ):
        env.integer(NAME, 3, minimum=1)


def test_number_words_and_choice(put) -> None:
    assert env.integer(NAME, 3) == 3
    put(" a, b ,,c")
    assert env.words(NAME) == ["a", "b", "c"]
    put("info")
    assert env.choice(NAME, "INFO", ("INFO", "DEBUG")) == "INFO"
    put("loud")
    with pytest.raises(ImproperlyConfigured, match="UNSQUEEZE_X is 'loud'; accepted are INFO, DEBUG"):
        env.choice(NAME, "INFO", ("INFO", "DEBUG"))


def test_a_secret_from_a_file(put, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    put(str(tmp_path / "key"), f"{NAME}_FILE")
    assert env.secret(NAME) == "s3cret"
    put("other")
    with pytest.raises(ImproperlyConfigured, match="UNSQUEEZE_X and UNSQUEEZE_X_FILE are both set"):
        env.secret(NAME)


def test_a_secret_file_that_cannot_be_read_is_refused(put, tmp_path: Path) -> None:
    put(str(tmp_path / "none"), f"{NAME}_FILE")
    with pytest.raises(ImproperlyConfigured, match=r"UNSQUEEZE_X_FILE is .* cannot be read"):
        env.secret(NAME)


def test_the_database_is_sqlite_in_the_data_folder_by_default(tmp_path: Path) -> None:
    found = env.database(NAME, data=tmp_path)
    assert found["NAME"] == str(tmp_path / "db.sqlite3")
    assert found["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in found["OPTIONS"]["init_command"]


def test_a_postgresql_address(put, tmp_path: Path) -> None:
    put("postgresql://ada:p%40ss@db.local:5433/runs?sslmode=require")
    assert env.database(NAME, data=tmp_path) == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "runs",
        "USER": "ada",
        "PASSWORD": "p@ss",
        "HOST": "db.local",
        "PORT": "5433",
        "OPTIONS": {"sslmode": "require"},
    }


def test_a_refused_address_does_not_repeat_its_password(put, tmp_path: Path) -> None:
    put("mysql://ada:hunter2@db/runs")
    with pytest.raises(ImproperlyConfigured, match="starts with 'mysql'") as refused:
        env.database(NAME, data=tmp_path)
    assert "hunter2" not in str(refused.value)


def test_the_broker_is_files_in_the_data_folder_by_default(tmp_path: Path) -> None:
    address, options = env.broker(NAME, data=tmp_path)
    assert address == "filesystem://"
    assert Path(options["data_folder_in"]).is_dir()
    assert options["data_folder_in"] == options["data_folder_out"]


def test_a_redis_broker(put, tmp_path: Path) -> None:
    put("redis://localhost:6379/0")
    options = {
        "visibility_timeout": 21600,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
    }
    assert env.broker(NAME, data=tmp_path) == ("redis://localhost:6379/0", options)
    put("amqp://x")
    with pytest.raises(ImproperlyConfigured, match="UNSQUEEZE_X starts with 'amqp'"):
        env.broker(NAME, data=tmp_path)


def test_the_stored_secret_is_made_once_and_only_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "secret_key"
    first = env.stored_secret(path)
    assert len(first) >= 50
    assert env.stored_secret(path) == first
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_storage_is_a_folder_unless_a_bucket_is_named(put) -> None:
    assert env.file_storage(NAME) == {"BACKEND": "webapp.core.folder_storage.FolderStorage"}


def test_a_bucket_with_a_prefix_and_the_keys_of_either_name(put, tmp_path: Path) -> None:
    put("s3://lab/a folder/here/")
    (tmp_path / "key").write_text("hidden\n")
    put("id", "AWS_ACCESS_KEY_ID")
    put(str(tmp_path / "key"), "UNSQUEEZE_S3_SECRET_ACCESS_KEY_FILE")
    put("http://minio:9000", "UNSQUEEZE_S3_ENDPOINT_URL")
    assert env.file_storage(NAME)["OPTIONS"] == {
        "bucket_name": "lab",
        "location": "a folder/here",
        "access_key": "id",
        "secret_key": "hidden",
        "region_name": None,
        "endpoint_url": "http://minio:9000",
    }


@pytest.mark.parametrize("address", ["gs://lab", "s3://", "/srv/files", "s3://Lab", "s3://lab/../x", "s3://lab/x?y=1"])
def test_another_file_storage_is_refused(put, address: str) -> None:
    put(address)
    with pytest.raises(ImproperlyConfigured, match=r"UNSQUEEZE_X .*accepted is"):
        env.file_storage(NAME)


def test_half_a_pair_of_keys_and_a_bad_endpoint_are_refused(put) -> None:
    put("s3://lab")
    put("id", "UNSQUEEZE_S3_ACCESS_KEY_ID")
    with pytest.raises(ImproperlyConfigured, match="but not UNSQUEEZE_S3_SECRET_ACCESS_KEY"):
        env.file_storage(NAME)
    put("x", "UNSQUEEZE_S3_SECRET_ACCESS_KEY")
    put("minio:9000", "UNSQUEEZE_S3_ENDPOINT_URL")
    with pytest.raises(ImproperlyConfigured, match="UNSQUEEZE_S3_ENDPOINT_URL is 'minio:9000'"):
        env.file_storage(NAME)
