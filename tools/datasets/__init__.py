"""What data sets are made from: lists, folders and archives of images, the files of MNIST and CIFAR."""
