"""The upload batch of directory sync, under the name by which the agent and the storage know it."""

from gpubloom.traincard.sync.upload_batch import UploadBatch

__all__ = ["UploadBatch"]
