"""How to create a bucket and its key at common services, in steps for a person."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketGuide:
    """`endpoint`: with parts in angle brackets to replace; empty where the service's own is used."""

    name: str
    title: str
    page: str
    endpoint: str
    region: str
    steps: tuple[str, ...]


GUIDES = (
    BucketGuide(
        "r2",
        "Cloudflare R2",
        "https://dash.cloudflare.com/?to=/:account/r2",
        "https://<account-id>.r2.cloudflarestorage.com",
        "auto",
        (
            "Open R2 in the Cloudflare dashboard and create a bucket.",
            "Choose Manage API tokens, then Create API token, with the permission Object Read & Write for "
            "this bucket only.",
            "Copy the access key ID and the secret access key. The secret is shown once.",
            "Copy the endpoint from the same page. Do not include the name of the bucket.",
        ),
    ),
    BucketGuide(
        "b2",
        "Backblaze B2",
        "https://secure.backblaze.com/b2_buckets.htm",
        "https://s3.<region>.backblazeb2.com",
        "<region>, for example us-west-004",
        (
            "Create a private bucket under B2 Cloud Storage, Buckets.",
            "Set its lifecycle to keep only the last version of a file. Otherwise old versions are billed.",
            "Create an application key for this bucket only, with read and write access.",
            "Copy keyID as the access key and applicationKey as the secret key. The latter is shown once.",
            "The endpoint stands beside the bucket. The region is its second part.",
        ),
    ),
    BucketGuide(
        "s3",
        "AWS S3",
        "https://console.aws.amazon.com/s3/",
        "",
        "the region of the bucket, for example eu-central-1",
        (
            "Create a bucket and leave Block all public access on.",
            "Create an IAM user without console access. Allow s3:ListBucket for the bucket, and "
            "s3:GetObject, s3:PutObject and s3:DeleteObject for its objects.",
            "Create an access key of this user for an application outside AWS. Keys of a role expire and "
            "end the addresses of running jobs.",
            "Leave the endpoint empty and enter the region of the bucket.",
        ),
    ),
)
