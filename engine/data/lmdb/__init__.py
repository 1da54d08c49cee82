"""LMDB databases, read without liblmdb and written as Caffe's tools write them."""
