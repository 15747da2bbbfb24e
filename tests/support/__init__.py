"""Parts that the tests of several folders share: servers, coordinators and observers that a test controls."""
