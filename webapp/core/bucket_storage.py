"""The file storage as a bucket that speaks S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from storages.backends.s3 import S3Storage
from urllib3.exceptions import HTTPError

from webapp.core.file_storages import CHUNK, StorageError, Stored

MULTIPART_FROM = 8 << 20


class BucketStorage(S3Storage):
    """Objects of a bucket below a prefix. Files over 8 MB go up in parts."""

    local = False

    def __init__(self, **options: Any) -> None:
        super().__init__(
            client_config=Config(
                connect_timeout=5,
                read_timeout=30,
                retries={"max_attempts": 3, "mode": "standard"},
                s3={"addressing_style": "path" if options.get("endpoint_url") else "auto"},
            ),
            # No threads of its own: those who call are threads already, and may be many.
            transfer_config=TransferConfig(multipart_threshold=MULTIPART_FROM, use_threads=False),
            **options,
        )

    def describe(self) -> str:
        """For people: where the files are."""
        at = f" at {self.endpoint_url}" if self.endpoint_url else ""
        return f"the bucket {self.bucket_name}{at} (UNSQUEEZE_STORAGE_URL)"

    @cached_property
    def _client(self) -> Any:
        # Clients may be shared by threads, what they come from may not; and to make one takes half a second.
        return self.connection.meta.client

    def _key(self, uri: str) -> str:
        return f"{self.location.strip('/')}/{uri}".lstrip("/")

    def stat(self, uri: str) -> Stored:
        with self._told(uri):
            head = self._client.head_object(Bucket=self.bucket_name, Key=self._key(uri))
        return Stored(uri, head["ContentLength"], head["LastModified"])

    def chunks(self, uri: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `begin` up to, not including, `end`; the connection is closed with the iterator."""
        if end is not None and end <= begin:
            return
        wanted = {"Range": f"bytes={begin}-{'' if end is None else end - 1}"} if begin or end is not None else {}
        with self._told(uri):
            body = self._client.get_object(Bucket=self.bucket_name, Key=self._key(uri), **wanted)["Body"]
        try:
            parts = body.iter_chunks(CHUNK)
            while True:
                with self._told(uri):
                    data = next(parts, b"")
                if not data:
                    return
                yield data
        finally:
            body.close()

    def put(self, path: Path, uri: str) -> None:
        """Uploads a file; it appears whole or not at all."""
        with self._told(uri):
            self._client.upload_file(str(path), self.bucket_name, self._key(uri), Config=self.transfer_config)

    def write(self, uri: str, data: bytes) -> None:
        """A small object from memory."""
        with self._told(uri):
            self._client.put_object(Bucket=self.bucket_name, Key=self._key(uri), Body=data)

    def walk(self, folder: str) -> Iterator[Stored]:
        """Every object below, by key."""
        prefix = self._key(f"{folder}/" if folder else "")
        begin = len(self._key(""))
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket_name, Prefix=prefix))
        while True:
            with self._told(folder):
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", ()):
                yield Stored(item["Key"][begin:], item["Size"], item["LastModified"])

    def remove(self, uri: str) -> None:
        """The object. One that is not there is no error."""
        with self._told(uri):
            self._client.delete_object(Bucket=self.bucket_name, Key=self._key(uri))

    @contextmanager
    def _told(self, uri: str) -> Iterator[None]:
        """Errors of the client library as OSErrors that name the file and the storage."""
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in ("404", "NoSuchKey", "NotFound"):
                raise FileNotFoundError(f"{uri} is not in {self.describe()}") from error
            raise StorageError(f"{self.describe()} refused {uri or 'the listing'}: {error}") from error
        except (BotoCoreError, Boto3Error, HTTPClientError, HTTPError) as error:
            raise StorageError(f"{self.describe()} failed at {uri or 'the listing'}: {error}") from error
