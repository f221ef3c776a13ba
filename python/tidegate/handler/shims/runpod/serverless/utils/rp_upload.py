"""Uploads files to a bucket, or copies them to a local folder if no bucket is configured.

A bucket needs `boto3`, and `BUCKET_ENDPOINT_URL`, `BUCKET_ACCESS_KEY_ID` and `BUCKET_SECRET_ACCESS_KEY`, or
credentials in the call.
"""

import logging
import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

logger = logging.getLogger("runpod upload utility")

_ONE_WEEK = 604800

Credentials = dict[str, str]


def get_boto_client(bucket_creds: "Credentials | None" = None) -> "tuple[Any, Any]":
    """Return a client for the bucket and its transfer settings; `None` if no bucket is configured."""
    creds = bucket_creds or {
        "endpointUrl": os.environ.get("BUCKET_ENDPOINT_URL", ""),
        "accessId": os.environ.get("BUCKET_ACCESS_KEY_ID", ""),
        "accessSecret": os.environ.get("BUCKET_SECRET_ACCESS_KEY", ""),
    }
    keys = ("endpointUrl", "accessId", "accessSecret")
    endpoint, access, secret = (creds[key] for key in keys)
    if not (endpoint and access and secret):
        return None, None
    try:
        from boto3.s3.transfer import TransferConfig
        from boto3.session import Session
        from botocore.config import Config
    except ImportError:
        logger.warning("boto3 is not installed, so files cannot be uploaded to a bucket: pip install boto3")
        return None, None
    client = Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        region_name=extract_region_from_url(endpoint),
        config=Config(signature_version="s3v4", retries={"max_attempts": 3, "mode": "standard"}),
    )
    return client, TransferConfig()


def extract_region_from_url(endpoint_url: str) -> "str | None":
    """Return the region in the URL of a bucket, if it has one."""
    if ".s3." in endpoint_url:
        return endpoint_url.split(".s3.")[1].split(".")[0]
    if endpoint_url.split("/")[2:3] and endpoint_url.split("/")[2].endswith(".digitaloceanspaces.com"):
        return endpoint_url.split(".")[1]
    return None


def upload_image(
    job_id: str,
    image_location: str,
    result_index: int = 0,
    results_list: "list[str | None] | None" = None,
    bucket_name: "str | None" = None,
) -> str:
    """Upload one image; return its URL, which is valid for a week."""
    extension = os.path.splitext(image_location)[1]
    name = f"{str(uuid.uuid4())[:8]}{extension}"
    with open(image_location, "rb") as image:
        data = image.read()
    client, _ = get_boto_client()
    if client is None:
        url = _save_locally("simulated_uploaded", name, data)
    else:
        bucket, key = bucket_name or _default_bucket(), f"{job_id}/{name}"
        client.put_object(Bucket=bucket, Key=key, Body=data, ContentType=f"image/{extension.lstrip('.')}")
        url = _presigned_url(client, bucket, key)
    if results_list is not None:
        results_list[result_index] = url
    return url


def files(job_id: str, file_list: "list[str]") -> "list[str]":
    """Upload several images in parallel."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda path: upload_image(job_id, path), file_list))


def bucket_upload(job_id: str, file_list: "list[str]", bucket_creds: Credentials) -> "list[str]":
    """Upload files to the bucket in the credentials."""
    client, _ = get_boto_client(bucket_creds)
    if client is None:
        raise ImportError("a bucket needs boto3 and complete credentials: pip install boto3")
    urls = []
    for path in file_list:
        key, bucket = f"{job_id}/{path}", bucket_creds["bucketName"]
        with open(path, "rb") as data:
            client.put_object(Bucket=bucket, Key=key, Body=data)
        urls.append(f"{bucket_creds['endpointUrl']}/{bucket}/{key}")
    return urls


def upload_file_to_bucket(
    file_name: str,
    file_location: str,
    bucket_creds: "Credentials | None" = None,
    bucket_name: "str | None" = None,
    prefix: "str | None" = None,
    extra_args: "dict[str, Any] | None" = None,
) -> str:
    """Upload one file; return its URL, which is valid for a week."""
    client, transfer = get_boto_client(bucket_creds)
    if client is None:
        os.makedirs("local_upload", exist_ok=True)
        return str(shutil.copyfile(file_location, f"local_upload/{file_name}"))
    bucket, key = bucket_name or _default_bucket(), f"{prefix}/{file_name}" if prefix else file_name
    client.upload_file(file_location, bucket, key, ExtraArgs=extra_args or None, Config=transfer)
    return _presigned_url(client, bucket, key)


def upload_in_memory_object(
    file_name: str,
    file_data: bytes,
    bucket_creds: "Credentials | None" = None,
    bucket_name: "str | None" = None,
    prefix: "str | None" = None,
) -> str:
    """Upload bytes as a file; return its URL, which is valid for a week."""
    client, transfer = get_boto_client(bucket_creds)
    if client is None:
        return _save_locally("local_upload", file_name, file_data)
    import io

    bucket, key = bucket_name or _default_bucket(), f"{prefix}/{file_name}" if prefix else file_name
    client.upload_fileobj(io.BytesIO(file_data), bucket, key, Config=transfer)
    return _presigned_url(client, bucket, key)


def _default_bucket() -> str:
    return time.strftime("%m-%y")


def _presigned_url(client: "Any", bucket: str, key: str) -> str:
    params = {"Bucket": bucket, "Key": key}
    return str(client.generate_presigned_url("get_object", Params=params, ExpiresIn=_ONE_WEEK))


def _save_locally(folder: str, name: str, data: bytes) -> str:
    logger.warning("no bucket is configured, the file is saved in `%s`", folder)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}", "wb") as target:
        target.write(data)
    return f"{folder}/{name}"
