"""Stores of checkpoints that are not on a filesystem. A URL such as s3://bucket/step-1000 is taken wherever a path is:

    reshard.convert("s3://bucket/step-1000", "gs://serving/model", to="hf")

    pip install 'reshard[stores]'

installs obstore, which has S3 and what speaks it (R2, MinIO, ...), Google Cloud Storage and Azure; every other URL goes
to fsspec, where that is installed. They handle credentials, endpoints, retries and proxies: see the pages about them
that docs/tasks/stores.md names. https:// and hf://ORG/MODEL[@REVISION] need neither.
"""

from .interface import Entry, Found, Store, StoreError, Upload
from .schemes import register, store_of

__all__ = ["Entry", "Found", "Store", "StoreError", "Upload", "register", "store_of"]
