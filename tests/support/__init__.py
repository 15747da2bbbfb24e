"""Servers, coordinators and observers that the tests of several folders control."""
