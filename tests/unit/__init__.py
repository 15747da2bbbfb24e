"""Tests of one module each, without processes or servers."""
